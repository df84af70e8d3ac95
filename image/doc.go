// Package image keeps saved states on disk. An image is a directory with a
// manifest and the three files of the engine; it is written beside, verified,
// and published by one rename, so that it is either whole or not there. Beside
// them are the read-only file systems that images need, by their SHA-256.
//
//	DIR/images/<image id>/{manifest.json,kernel,pages-meta,pages}
//	DIR/rootfs/<sha-256>.erofs
//	DIR/staging/…   what is being written or removed; what nobody holds is swept at Open
package image
