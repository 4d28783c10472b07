// Package sleep waits for a while, and no longer than anybody is interested.
//
// It imports nothing of this module.
package sleep
