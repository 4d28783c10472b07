// Package durable writes files that must survive a crash and a power cut, wholly or not
// at all.
package durable
