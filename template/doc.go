// Package template makes templates: a definition (a folder with template.toml)
// becomes a Debian root file system, that becomes an EROFS image, and that,
// booted once and saved, becomes the image which sandboxes are restored from.
//
// Each of the three is named by its content and made once. The root file system
// is kept in a cache (see BuildRootfs); the saved image has an id that follows
// from what went into it (see Build), so making the same template again finds
// it and does nothing.
//
// Everything is made beside its place and renamed into it. A build that is
// killed leaves one partial folder, which the next build of any template
// removes; mounts and processes of it are gone at once, because they live in
// namespaces that end with the builder.
package template
