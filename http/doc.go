// Package http is the API of the service over HTTP, in the dialects of E2B and of
// CubeSandbox. It knows nothing of engines. openapi.yaml describes its routes;
// docs/api.md says what the dialects do differently.
package http
