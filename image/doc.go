// Package image keeps saved states on disk. An image is a directory with a manifest,
// the three files of the engine, a table where it has memory in the pages of other
// images, its bases, and, where they were kept apart, the sandbox's own files as a tar. It is written beside, verified, and published by one rename, so
// that it is either whole or not there; made durable, it survives a power cut too.
// Beside the images are the read-only file systems that they need, by their SHA-256.
//
//	DIR/images/<image id>/manifest.json            what it is, with the sums of its files; hidden.json once it is hidden
//	                      kernel,pages-meta,pages  the engine's; not there for one that has files only
//	                      sources                  what of its memory lies in the pages of which base (package pagetable);
//	                                               optional; sources.1 and so on once it was replaced
//	                      disk.tar                 what was written to disk; optional
//	                      durable                  all of the above has been synced
//	                      verified                 what was found when files were read again
//	DIR/bases/<base id>/pages                      those of a deleted image, or of clones, in which others have memory
//	                    manifest.json              its, or hidden.json; the directory has no others of its files
//	                    sources                    of what was copied together: from where
//	DIR/rootfs/<sha-256>.erofs                     a file system
//	           <sha-256>.json                      what was found when it was last read
//	DIR/staging/…                                  what is being written or removed; what nobody holds is swept at Open
//
// DESIGN.md has the invariants, and what a crash or a power cut leaves.
package image
