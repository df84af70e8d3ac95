// Package durable has the tests of what must not be lost or spoiled on disk: a power
// cut, a full disk, flipped bits, and parents that are deleted before their children.
package durable
