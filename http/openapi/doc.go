// Package openapi has the bodies of the API's requests and answers, generated from
// http/openapi.yaml by http/generate.sh.
package openapi
