// Copyright 2026 The Cube Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package compressio

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// TestAByteIsReadAsReadDoes: with and without a key, mixed with Read, across chunks, up to
// the end, and where somebody has changed something.
func TestAByteIsReadAsReadDoes(t *testing.T) {
	want := make([]byte, 1000)
	for i := range want {
		want[i] = byte(i * 7)
	}
	for name, key := range map[string][]byte{"without a key": nil, "with a key": []byte("key")} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			w := NewSimpleWriter(&buf, key, 100)
			if _, err := w.Write(want); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			r := NewSimpleReader(io.NopCloser(bytes.NewReader(buf.Bytes())), key)
			var got []byte
			for len(got) < len(want) {
				b, err := r.ReadByte()
				if err != nil {
					t.Fatal(err)
				}
				some := make([]byte, 2)
				n, err := r.Read(some[:min(2, len(want)-len(got)-1)])
				if err != nil {
					t.Fatal(err)
				}
				got = append(append(got, b), some[:n]...)
			}
			if !bytes.Equal(got, want) {
				t.Error("other bytes were read")
			}
			if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("at the end: got %v, want EOF", err)
			}
			if key == nil {
				return
			}
			changed := bytes.Clone(buf.Bytes())
			changed[50]++
			r, err := NewSimpleReader(io.NopCloser(bytes.NewReader(changed)), key), error(nil)
			for range want {
				if _, err = r.ReadByte(); err != nil {
					break
				}
			}
			if !errors.Is(err, ErrHashMismatch) {
				t.Errorf("where a byte was changed: got %v, want %v", err, ErrHashMismatch)
			}
		})
	}
}
