// Package sentry is what cube-sentry is made of: the keeper, and the sentry that
// it starts by executing itself again. All of gVisor's internal types stay in
// here, so that a server works with every installed version.
package sentry
