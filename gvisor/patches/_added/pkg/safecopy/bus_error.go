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

package safecopy

import "sync/atomic"

// onBusError is what SetOnBusError set.
var onBusError atomic.Pointer[func(addr uintptr)]

// SetOnBusError has f be called before a function of this package returns a BusError.
func SetOnBusError(f func(addr uintptr)) { onBusError.Store(&f) }

func busError(addr uintptr) error {
	if f := onBusError.Load(); f != nil {
		(*f)(addr)
	}
	return BusError{addr}
}
