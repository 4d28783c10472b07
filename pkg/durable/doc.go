// Package durable writes files that must survive a crash and a power cut, wholly or not
// at all. install.go copies programs from the plugin's image to the host: what runs on the host cannot
// see the image.
package durable
