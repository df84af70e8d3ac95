// Package filesystem is generated from guest/proto/filesystem.proto by generate.sh: the
// messages of envd's filesystem service. Its clients and handlers are in filesystemconnect.
package filesystem
