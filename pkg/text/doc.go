// Package text has the phrases that messages of all programs share. It imports nothing
// but the standard library.
package text
