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

package config

import (
	"maps"
	"slices"

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
)

// Precompile returns the program of one set of options. What depends on the process is
// left open in it.
func Precompile(opt Options) (precompiledseccomp.Program, error) {
	names := slices.Sorted(maps.Keys(opt.Vars()))
	return precompiledseccomp.Precompile(opt.ConfigKey(), names, func(vars precompiledseccomp.Values) *seccomp.Program {
		allowed, denied := rules(opt, vars)
		return &seccomp.Program{
			RuleSets: []seccomp.RuleSet{{Rules: denied}, {Rules: allowed, Action: seccomp.Allow}},
			Options:  SeccompOptions(opt),
		}
	})
}
