// Package cube is the language of the product: sandboxes, images, the engine
// that runs them, and the errors and events that they give. Everything else in
// this repository is written in these words. It imports the standard library
// only and does nothing by itself.
package cube
