// Package strict decodes YAML and JSON that administrators write. It refuses unknown and duplicate
// keys, and values of a wrong type.
//
// It decodes with UnmarshalStrict of sigs.k8s.io/yaml. That stops at the first error and names keys
// without their path, so a check before it reports all errors with their paths, and suggests the
// key that was probably meant or the object where the key belongs.
package strict
