// Package strict reads what administrators write, YAML or JSON, so that nothing
// of it is overlooked: a key that is unknown, misspelt or there twice, and a value
// of the wrong type, are refused with the file, the path of the key and, where one
// is near, the key that was meant.
//
// It imports nothing of ours.
package strict
