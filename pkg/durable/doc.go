// Package durable writes files that must survive a crash and a power cut, wholly or not
// at all.
//
// It imports nothing of this module.
package durable
