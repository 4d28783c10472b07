// Package build builds and installs the parts of a cluster from Go modules and
// Debian packages into a folder of the user's cache, named by their versions.
// Nothing is installed on the host itself.
package build

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Versions of what is built. That of Kubernetes stands in go.mod too, and KubernetesVariable replaces it.
const (
	kubernetes = "v1.37.2"
	Containerd = "v2.4.2"
	CNIPlugins = "v1.9.1"
	Helm       = "v4.3.2"
)

// KubernetesVariable is the environment variable that names another version of Kubernetes, such as v1.36.5.
const KubernetesVariable = "K8S_VERSION"

// Kubernetes is the version of Kubernetes that is built, and that clusters have.
func Kubernetes() string {
	return cmp.Or(os.Getenv(KubernetesVariable), kubernetes)
}

var released = regexp.MustCompile(`^v1\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// recipe counts changes of how things are built that versions do not show.
const recipe = 2

// Images that every node has.
const (
	PauseImage   = "tranche.test/pause:1"
	BusyboxImage = "docker.io/library/busybox:1.35"
)

// module is the Go module that this package belongs to.
const module = "github.com/tranche-dev/tranche/test/cluster"

// Dir is an installation: the folder of one set of versions.
type Dir string

// DefaultDir is the installation of this program's versions:
// $XDG_CACHE_HOME/tranche/cluster/KEY, with ~/.cache by default.
func DefaultDir() (Dir, error) {
	if !released.MatchString(Kubernetes()) {
		return "", fmt.Errorf("%s is %q: write a version of Kubernetes, such as %s", KubernetesVariable, Kubernetes(), kubernetes)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the folder for built parts (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return Dir(filepath.Join(cache, "tranche", "cluster", key())), nil
}

// key names the set of versions: Kubernetes' to read, a digest for the rest.
func key() string {
	all := strings.Join([]string{Kubernetes(), Containerd, CNIPlugins, Helm, fmt.Sprint(recipe), runtime.GOARCH}, " ")
	sum := sha256.Sum256([]byte(all))
	return Kubernetes() + "-" + hex.EncodeToString(sum[:4])
}

// Bin is the folder of the programs.
func (d Dir) Bin() string { return filepath.Join(string(d), "bin") }

// CNI is the folder of the network plugins.
func (d Dir) CNI() string { return filepath.Join(string(d), "cni") }

// Optional is the folder of an optional part: chart.tgz, image.tar and values.yaml, which has the name of
// the image.
func (d Dir) Optional(name string) string {
	i := slices.IndexFunc(projects, func(p project) bool { return p.name == name })
	return filepath.Join(string(d), projects[i].folder())
}

// Program is the path of one program.
func (d Dir) Program(name string) string { return filepath.Join(d.Bin(), name) }

// Images are the archives of the images that every node has.
func (d Dir) Images() []string {
	return []string{d.image("pause"), d.image("busybox")}
}

func (d Dir) image(name string) string {
	return filepath.Join(string(d), "images", name+".tar")
}

// Missing are the parts that are not there yet, of those that every cluster needs and of
// the optional ones with the given names.
func (d Dir) Missing(optional ...string) []string {
	var missing []string
	for _, part := range parts(optional...) {
		for _, file := range part.files {
			if _, err := os.Stat(filepath.Join(string(d), file)); err != nil {
				missing = append(missing, part.name)
				break
			}
		}
	}
	return missing
}
