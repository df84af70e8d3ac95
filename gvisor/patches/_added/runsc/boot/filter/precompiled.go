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
	"fmt"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// registerPrecompiled adds the programs that precompile has written, by the keys of their
// options. It is nil on architectures for which there are none.
var registerPrecompiled func(map[string]precompiledseccomp.Program)

// ToPrecompile returns the options whose programs are precompiled: systrap with netstack
// and gofers, without cgo, and nothing that has to be asked for. All others are built at
// start.
func ToPrecompile() ([]config.Options, error) {
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		return nil, fmt.Errorf("looking up platform: %w", err)
	}
	var options []config.Options
	for _, info := range systrap.PrecompiledSeccompInfo() {
		options = append(options, config.Options{Platform: info})
	}
	return options, nil
}
