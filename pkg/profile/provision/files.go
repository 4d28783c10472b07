package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// ending is the extension of files with a profile.
const ending = ".yaml"

// read reads the profiles in folders, by name. Earlier folders have precedence, also if their file is
// invalid; it is then returned with its error. A missing folder is empty.
func read(dirs []string) (map[string]*file, error) {
	files := map[string]*file{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			// The files of a mounted ConfigMap are in a folder with a leading dot.
			name, found := strings.CutSuffix(entry.Name(), ending)
			if !found || strings.HasPrefix(name, ".") || files[name] != nil {
				continue
			}
			path := filepath.Join(dir, entry.Name())
			f := &file{}
			if f.text, f.err = os.ReadFile(path); f.err == nil {
				f.profile, f.err = parse(path, name, f.text)
			}
			files[name] = f
		}
	}
	return files, nil
}

// file is the content of a file.
type file struct {
	text    []byte
	profile *v1alpha1.PartitionProfile
	err     error
}

func parse(path, name string, text []byte) (*v1alpha1.PartitionProfile, error) {
	if _, err := profile.Parse(path, text); err != nil {
		return nil, err
	}
	p := &v1alpha1.PartitionProfile{}
	if err := strict.Decode(path, text, p); err != nil {
		return nil, err
	}
	if p.Name != name {
		return nil, fmt.Errorf("%s: metadata.name: is %s, it must be %s, as the file is named", path, p.Name, name)
	}
	return p, nil
}
