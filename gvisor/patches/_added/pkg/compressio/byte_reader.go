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

import "io"

var _ io.ByteReader = (*SimpleReader)(nil)

// ReadByte implements io.ByteReader.ReadByte.
func (r *SimpleReader) ReadByte() (byte, error) {
	if r.h == nil {
		return r.bin.ReadByte()
	}
	_, err := r.Read(r.one[:]) // what it reads with an error is not to be used
	return r.one[0], err
}
