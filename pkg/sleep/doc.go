// Package sleep waits for a duration, or until a context ends.
//
// Imports: none.
package sleep
