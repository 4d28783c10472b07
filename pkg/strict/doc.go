// Package strict decodes YAML and JSON that administrators write. It rejects unknown keys, duplicate
// keys, and values of the wrong type.
//
// decode.go decodes with sigs.k8s.io/json, which finds all unknown keys. suggest.go suggests the key that
// was probably meant, or where it belongs. problems.go collects problems with their paths and lines.
package strict
