// Package pkg_test checks which packages import which.
package pkg_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/tranche-dev/tranche/"

// zone is a part of the product with one purpose.
type zone struct {
	name string
	// folders belong to the zone, with all below them that is in no other zone.
	folders []string
	// may has the zones and folders that its packages can import. All can import each other
	// within a zone, and the names and the vocabulary.
	may []string
}

var zones = []zone{
	{name: "names", folders: []string{"api/names"}},
	{name: "objects", folders: []string{"api/v1beta1"}},
	{name: "vocabulary", folders: []string{"pkg/allocation", "pkg/claimconfig", "pkg/durable", "pkg/gpu", "pkg/hook", "pkg/lists", "pkg/serve", "pkg/sleep", "pkg/strict", "pkg/text"}},
	{name: "client", folders: []string{"pkg/client"}, may: []string{"objects"}},
	{name: "hardware", folders: []string{"pkg/hardware"}},
	{name: "claims", folders: []string{"pkg/claim", "pkg/cdi"}, may: []string{"hardware"}},
	{name: "profiles", folders: []string{"pkg/profile"}, may: []string{"objects"}},
	{name: "workloads", folders: []string{"pkg/claimtemplate"}},
	{name: "formats", folders: []string{"pkg/profile/formats"}, may: []string{"objects", "profiles", "workloads"}},
	{name: "slices", folders: []string{"pkg/publish"}, may: []string{"objects", "profiles", "pkg/hardware/mig", "pkg/hardware/xcp"}},
	{name: "plugin", folders: []string{"pkg/node", "pkg/partition", "pkg/share"}, may: []string{"objects", "client", "hardware", "claims", "profiles", "slices"}},
	{name: "rollout", folders: []string{"pkg/rollout"}, may: []string{"objects"}},
	{name: "cluster", folders: []string{"pkg/cluster", "pkg/defrag", "pkg/why"}, may: []string{"objects", "client", "profiles", "slices", "workloads"}},
	{name: "controller", folders: []string{"pkg/controller"}, may: []string{"objects", "profiles", "formats", "slices", "rollout", "cluster", "workloads"}},
	{name: "usage", folders: []string{"pkg/usage"}, may: []string{"cluster"}},
	{name: "screens", folders: []string{"pkg/picture", "pkg/web"}, may: []string{"objects", "cluster", "rollout", "usage"}},
	{name: "uninstall", folders: []string{"pkg/uninstall"}, may: []string{"objects", "client", "workloads"}},
	{name: "programs", folders: []string{"cmd"}, may: []string{"objects", "client", "hardware", "profiles", "formats", "slices", "plugin", "rollout", "cluster", "controller", "usage", "screens", "uninstall"}},
	{name: "test", folders: []string{"test"}},
}

// never has the walls that no line of zones may open, each with its reason and the way out.
var never = []struct{ from, to, why string }{
	{"screens", "controller", "what is drawn comes from objects at the API server: put what both need into pkg/rollout or pkg/cluster"},
	{"screens", "plugin", "what is drawn comes from objects at the API server: let the plugin report it in its GPUNode"},
	{"screens", "hardware", "a screen runs on no node: let the plugin publish or report it"},
	{"controller", "plugin", "they are two programs, often of two versions, that talk through GPUNodes: put a shared name into api/names, a shared field into api/v1beta1"},
	{"controller", "hardware", "the controller runs on no GPU node: let the plugin report it in its GPUNode"},
	{"plugin", "controller", "they are two programs, often of two versions, that talk through GPUNodes: put a shared name into api/names, a shared field into api/v1beta1"},
	{"plugin", "uninstall", "they are two programs: a plugin sees that its DaemonSet is being deleted, and needs to know no more"},
	{"cluster", "plugin", "the model of the cluster is made of objects alone"},
	{"cluster", "controller", "the model of the cluster is made of objects alone"},
	{"hardware", "objects", "hardware knows GPUs, not Kubernetes: use types of pkg/gpu"},
	{"hardware", "claims", "claims use hardware, not the other way round: pass a function or a type of pkg/gpu"},
	{"claims", "objects", "a claim must be prepared and released by ledger and hardware alone: reasons and events are in api/names"},
	{"programs", "test", "what is shipped has no test code in it: move what the program needs into pkg"},
}

// Every zone of the product imports only what its line allows.
func TestWalls(t *testing.T) {
	used := map[string]bool{}
	for _, p := range packages(t, "../api/...", "./...", "../cmd/...") {
		require.NotEmpty(t, zoneOf(p.ImportPath), "%s is in no zone", p.ImportPath)
		for _, path := range p.Imports {
			by, broken := judge(p.ImportPath, path)
			assert.Empty(t, broken)
			used[by] = true
		}
	}
	for _, z := range zones {
		for _, to := range z.may {
			assert.True(t, used[z.name+" → "+to], "no package of %s imports %s: delete the permission", z.name, to)
		}
	}
}

func TestWallsHold(t *testing.T) {
	for _, tt := range []struct{ from, to, broken string }{
		{"pkg/picture", "pkg/controller/state", "put what both need into pkg/rollout or pkg/cluster"},
		{"pkg/web/live", "pkg/hardware/mps", "a screen runs on no node"},
		{"pkg/controller", "pkg/node/follow", "put a shared name into api/names"},
		{"pkg/node", "pkg/uninstall", "its DaemonSet is being deleted"},
		{"pkg/why/fit", "pkg/node/inventory", "made of objects alone"},
		{"pkg/hardware/amd", "api/v1beta1", "use types of pkg/gpu"},
		{"pkg/claim/steps", "api/v1beta1", "reasons and events are in api/names"},
		{"pkg/hardware/nvidia", "test/simulator/nvdriver", "the zone hardware can import names, vocabulary"},
		{"cmd/tranche-web", "test/clientfake", "what is shipped has no test code in it"},
		{"pkg/publish", "pkg/hardware/amd", "the zone slices can import"},
		{"api/names", "pkg/gpu", "the zone names can import"},
		{"pkg/gpu", "api/v1beta1", "the zone vocabulary can import"},
		{"pkg/publish/models", "pkg/hardware/mig", ""},
		{"pkg/claim", "api/names", ""},
		{"pkg/web", "pkg/why", ""},
	} {
		_, broken := judge(module+tt.from, module+tt.to)
		if tt.broken == "" {
			assert.Empty(t, broken)
		} else {
			assert.Contains(t, broken, tt.broken)
		}
	}
}

// judge returns the permission by which a package imports another one, or the rule that it
// breaks and the way out.
func judge(importer, imported string) (by, broken string) {
	from, to := zoneOf(importer), zoneOf(imported)
	if to == "" || to == from {
		return "", ""
	}
	for _, wall := range never {
		if wall.from == from && wall.to == to {
			return "", fmt.Sprintf("%s must not import %s (%s → %s): %s", importer, imported, from, to, wall.why)
		}
	}
	var may []string
	for _, z := range zones {
		if z.name == from {
			may = slices.Clone(z.may)
		}
	}
	switch from {
	case "names":
	case "objects", "vocabulary":
		may = append([]string{"names"}, may...)
	default:
		may = append([]string{"names", "vocabulary"}, may...)
	}
	for _, permission := range may {
		if permission == to || below(imported, permission) {
			return from + " → " + permission, ""
		}
	}
	return "", fmt.Sprintf("%s must not import %s: the zone %s can import %s. Move what both need into one of these, or pass it in",
		importer, imported, from, strings.Join(may, ", "))
}

// No two zones can import each other, directly or through others.
func TestZonesHaveAnOrder(t *testing.T) {
	seen := map[string]bool{"names": true, "vocabulary": true}
	for _, z := range zones {
		for _, to := range z.may {
			assert.True(t, seen[to] || seen[zoneOf(module+to)], "%s can import %s, which comes after it", z.name, to)
		}
		seen[z.name] = true
		for _, wall := range never {
			assert.False(t, wall.from == z.name && slices.Contains(z.may, wall.to), "%s can import %s, which it never may", z.name, wall.to)
		}
	}
	for _, wall := range never {
		assert.True(t, seen[wall.from] && seen[wall.to], "%s → %s names no zone", wall.from, wall.to)
	}
}

// zoneOf returns the zone of a package, empty for those of other modules.
func zoneOf(path string) (name string) {
	longest := ""
	for _, z := range zones {
		for _, folder := range z.folders {
			if below(path, folder) && len(folder) > len(longest) {
				name, longest = z.name, folder
			}
		}
	}
	return name
}

func below(path, folder string) bool {
	return path == module+folder || strings.HasPrefix(path, module+folder+"/")
}

type listed struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T, patterns ...string) (all []listed) {
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if p.ImportPath != module+"pkg" && p.ImportPath != module+"cmd" { // tests of the whole folder
			all = append(all, p)
		}
	}
}
