// Package manifest converts objects with pods, of whatever kind: what their pods ask for in the way
// of another project becomes claims.
//
// convert.go finds the pods and converts them, edit.go changes YAML in place: the rest of the object,
// with its comments, stays as it was written.
package manifest
