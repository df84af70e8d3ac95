// Copyright 2026 The Cube Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//	http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package filter

import (
	"reflect"
	"testing"

	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// TestPrecompiledProgramsAreThoseOfTheRules fails where a rule has changed and the file
// with the programs has not. There is one for amd64, which tests run on.
func TestPrecompiledProgramsAreThoseOfTheRules(t *testing.T) {
	options, err := ToPrecompile()
	if err != nil || len(options) == 0 {
		t.Fatalf("ToPrecompile: %v, %v", options, err)
	}
	for _, opt := range options {
		want, err := config.Precompile(opt)
		if err != nil {
			t.Fatalf("Precompile(%s): %v", opt.ConfigKey(), err)
		}
		got, ok := GetPrecompiled(opt.ConfigKey())
		if !ok {
			t.Fatalf("GetPrecompiled(%s): no such program", opt.ConfigKey())
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the program for %s is not that of the rules; run precompile", opt.ConfigKey())
		}
		if _, err := got.RenderInstructions(opt.Vars()); err != nil {
			t.Errorf("RenderInstructions(%s): %v", opt.ConfigKey(), err)
		}
	}
}
