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
	rtdebug "runtime/debug"
	"time"
)

// trimDelay is how long after a restore the heap is trimmed: what the sandbox does first
// goes before.
const trimDelay = time.Second

// trimHeap gives back, a little later, what loading has left on the heap. The garbage
// collector would not run again before as much was allocated once more, which may be never.
func trimHeap() { time.AfterFunc(trimDelay, rtdebug.FreeOSMemory) }
