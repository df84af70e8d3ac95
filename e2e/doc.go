// Package e2e has the end-to-end tests of the engine: real sandboxes, the template
// base, and after every test a look at what it left. They need root and what make
// builds. See package lab for what they stand on.
package e2e
