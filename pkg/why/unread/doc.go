// Package unread names the kinds of objects that an explanation needs, and says what cannot be
// determined without each.
//
// Everything is pure.
package unread
