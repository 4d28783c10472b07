package web

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	g "maragu.dev/gomponents"
)

//go:embed assets
var files embed.FS

// asset is a file that browsers keep for ever: its path has a hash of its content.
type asset struct {
	path, kind string
	data       packed
}

// readAssets returns the files by name, and by the path below assets/.
func readAssets() (byName, byPath map[string]asset, err error) {
	byName, byPath = map[string]asset{}, map[string]asset{}
	err = fs.WalkDir(files, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		short, ext := strings.TrimPrefix(name, "assets/"), path.Ext(name)
		a := asset{path: strings.TrimSuffix(short, ext) + "-" + base64.RawURLEncoding.EncodeToString(sum[:9]) + ext, kind: kindOf(ext), data: pack(g.Raw(string(data)))}
		byName[short], byPath[a.path] = a, a
		return nil
	})
	return byName, byPath, err
}

func kindOf(ext string) string {
	switch ext { // the machine's own tables may say otherwise
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(ext)
}

// asset returns the path of a file.
func (s *Server) asset(name string) string { return s.Base + "/assets/" + s.names[name].path }

func (s *Server) serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := s.assets[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	a.data.write(w, r, http.StatusOK)
}
