// Package web serves the web page: pages rendered on the server, one script and one stylesheet,
// all embedded. Server-sent events carry the parts of a page that change. It only reads.
//
// Elements are Go functions: html/template finds methods by their names, so with it the linker
// keeps all methods of all types, and kubectl-tranche is half as large again.
//
// Who may call it, and what a user may see, the caller decides: Local guards a server on a
// loopback address for one user, Options.Viewer is asked for each request.
package web
