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

package boot

import (
	"errors"
	"testing"
)

// TestRestoreFailsBeforeItBegins reports the failure of a restore that nobody can wait for
// yet: its error is kept for whoever asks, and the process goes on.
func TestRestoreFailsBeforeItBegins(t *testing.T) {
	want := errors.New("statefile cannot be empty")
	cm := &containerManager{l: &Loader{state: created}}
	cm.onRestoreFailed(want)
	if cm.l.state != restoreFailed {
		t.Errorf("got state %v, want %v", cm.l.state, restoreFailed)
	}
	if err := cm.l.waitRestore(); !errors.Is(err, want) {
		t.Errorf("waitRestore: got %v, want %v", err, want)
	}
}
