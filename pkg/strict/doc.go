// Package strict decodes YAML and JSON that administrators write. It refuses unknown and duplicate
// keys, and values of a wrong type.
//
// decode.go decodes with sigs.k8s.io/json, which finds all unknown keys. suggest.go says which key
// was probably meant, or where it belongs. problems.go collects problems with their paths and lines.
package strict
