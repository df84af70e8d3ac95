// Package service is the verbs on the sandboxes of one machine, with what must
// outlive every process of ours: names, tokens, time limits and records. It stands
// on an engine, a store and the images; DESIGN.md has its invariants.
package service
