// Package browser tests the web page in a headless Chromium, on invented clusters. It is a module
// of its own, because nothing else needs a browser's protocol.
package browser
