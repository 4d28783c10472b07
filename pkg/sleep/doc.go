// Package sleep waits for a duration, or until a context ends.
package sleep
