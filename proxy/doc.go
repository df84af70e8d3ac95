// Package proxy is the data plane: it takes a request to the sandbox that it
// names, by host, headers, path or signature, and to the life of that sandbox
// which is current when the request comes. DESIGN.md has its rules.
package proxy
