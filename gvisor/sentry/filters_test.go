//go:build cube_patched

package sentry

import (
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/config"
)

// TestNoSentryCompilesItsFilters: there is a program for what sentryConfig asks for.
func TestNoSentryCompilesItsFilters(t *testing.T) {
	conf, err := sentryConfig(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := platform.Lookup(conf.Platform)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range p.PrecompiledSeccompInfo() {
		opt := filter.Options{
			Platform: info, HostNetwork: conf.Network == config.NetworkHost, HostFilesystem: conf.DirectFS,
			ProfileEnable: conf.ProfileEnable, NVProxy: conf.NVProxy, TPUProxy: conf.TPUProxy,
			CgoEnabled: config.CgoEnabled, PluginNetwork: conf.Network == config.NetworkPlugin,
		}
		if _, ok := filter.GetPrecompiled(opt.ConfigKey()); !ok {
			t.Errorf("none for %s; there are %v", opt.ConfigKey(), filter.ListPrecompiled())
		}
	}
}
