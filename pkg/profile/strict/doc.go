// Package strict reads YAML and JSON that administrators write, so that nothing in it is
// overlooked: unknown or repeated keys and values of a wrong type are refused.
//
// The decoding is that of sigs.k8s.io/yaml, with UnmarshalStrict. The check before it
// exists because the library stops at the first mistake and names a key without its
// place: this one reports all mistakes with their paths, the key that was probably meant,
// and where a key belongs that is in the wrong object.
//
// Imports: none.
package strict
