// Package process is generated from guest/proto/process.proto by generate.sh: the
// messages of envd's process service. Its clients and handlers are in processconnect.
package process
