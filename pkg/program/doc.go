// Package program puts programs that Tranche brings along where the host finds
// them: what runs on the host cannot see the plugin's image.
//
// Imports: none.
package program
