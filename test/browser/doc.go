// Package browser tests the web page in a headless Chromium, on invented clusters. It is a module
// of its own, because nothing else needs a browser's protocol.
//
// make test-browser runs it. Without that, tests are skipped for which Chromium or axe-core is missing.
package browser
