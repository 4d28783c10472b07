// Package sleep waits for a while, and no longer than anybody is interested.
//
// Imports: none.
package sleep
