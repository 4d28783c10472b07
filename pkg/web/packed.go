package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"

	g "maragu.dev/gomponents"
)

// packed is a page as it is sent: compressed, so that a browser which reads slowly keeps little of
// the memory of this process.
type packed []byte

// packers keep what it takes to compress, which is most of a megabyte.
var packers = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}}

// pack draws elements.
func pack(n g.Node) packed {
	var out bytes.Buffer
	z := packers.Get().(*gzip.Writer) //nolint:forcetypeassert // its New makes no other
	defer packers.Put(z)
	z.Reset(&out)
	_ = n.Render(z) // a Buffer takes everything
	_ = z.Close()
	return bytes.Clone(out.Bytes())
}

// write writes a whole answer. A browser that does not accept compressed answers, which hardly one
// does, gets it unpacked.
func (p packed) write(w http.ResponseWriter, r *http.Request, status int) {
	w.Header().Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(status)
		_, _ = w.Write(p) // the browser has gone
		return
	}
	w.WriteHeader(status)
	z, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		panic(err) // this process has packed it
	}
	_, _ = io.Copy(w, z) // the browser has gone
}
