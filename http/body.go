package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
)

// readObject reads a JSON object; an empty body is an empty one.
func readObject(r *http.Request) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if r.Body == nil {
		return fields, nil
	}
	b, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, &statusError{http.StatusRequestEntityTooLarge, "the body is larger than 1 MiB"}
	}
	if err != nil {
		return nil, invalid("the body did not come to its end: %v", err)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return fields, nil
	}
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, invalid("validation error: the body is no JSON object: %v", err)
	}
	if fields == nil { // it was null
		fields = map[string]json.RawMessage{}
	}
	return fields, nil
}

// rename gives fields the names that we know them by, in pairs. What is there
// under that name stays.
func rename(fields map[string]json.RawMessage, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		v, ok := fields[pairs[i]]
		if !ok {
			continue
		}
		delete(fields, pairs[i])
		if _, taken := fields[pairs[i+1]]; !taken {
			fields[pairs[i+1]] = v
		}
	}
}

// renameIn does so in an object that is a field.
func renameIn(fields map[string]json.RawMessage, field string, pairs ...string) {
	var inner map[string]json.RawMessage
	if json.Unmarshal(fields[field], &inner) != nil || inner == nil {
		return // into says what is wrong
	}
	rename(inner, pairs...)
	if b, err := json.Marshal(inner); err == nil {
		fields[field] = b
	}
}

// into reads fields into a body; null is like nothing, unknown ones are ignored.
func into(fields map[string]json.RawMessage, body any) error {
	for name, v := range fields {
		if string(v) == "null" {
			delete(fields, name)
		}
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return invalid("validation error: %v", err)
	}
	err = json.Unmarshal(b, body)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return invalid("validation error: %s: want %s, got %s", wrong.Field, kindOf(wrong.Type), wrong.Value)
	}
	if err != nil {
		return invalid("validation error: %v", err)
	}
	return nil
}

// yes reads what need not be said, and is false where it is not.
func yes(b *bool) bool { return b != nil && *b }

// kindOf says a Go type in JSON's words.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Slice:
		return "an array"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	default:
		return "a string"
	}
}

// read reads the body of a request.
func read(r *http.Request, body any) error {
	fields, err := readObject(r)
	if err != nil {
		return err
	}
	return into(fields, body)
}
