package browser

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/test/scenes"
)

// required is the variable that makes tests fail for which something is missing. make test-browser sets it.
const required = "TRANCHE_BROWSER"

// missing skips a test for which something is missing.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(required) != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// axe returns axe-core, which finds faults of accessibility. npm fetches it: package-lock.json has its version
// and checksum.
func axe(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), data, 0o600))
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
	npm.Dir = folder
	if said, err := npm.CombinedOutput(); err != nil {
		missing(t, "npm cannot fetch axe-core: "+err.Error()+"\n"+string(said))
	}
	source, err := os.ReadFile(filepath.Join(folder, "node_modules", "axe-core", "axe.min.js"))
	require.NoError(t, err)
	return string(source)
}

// pages returns the paths of pages of each kind: of GPUs, one that is shared.
func (b *tab) pages() []string {
	b.t.Helper()
	claim := lists.Find(b.objects.Claims, func(c *resourceapi.ResourceClaim) bool {
		return c.Status.Allocation != nil && len(scenes.Result(c).ConsumedCapacity) > 0
	})
	require.NotNil(b.t, claim, "no GPU is shared")
	r := scenes.Result(claim)
	node := "/nodes/" + r.Pool
	return []string{"/", node, node + "/" + cluster.GPUOf(r.Device), "/pending", "/pending/vision/train-9000", "/rollouts", "/fits?profile=20Gi"}
}

// screen is where a page is looked at.
type screen struct {
	width, height int64
	// scheme is light or dark.
	scheme string
}

// look shows the pages on a screen. Narrow ones are those of phones.
func (b *tab) look(at screen) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: at.width, Height: at.height, DeviceScaleFactor: 1, Mobile: at.width < 700})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: at.scheme}}})
}

func TestAccessibility(t *testing.T) {
	source := axe(t)
	for name, at := range map[string]screen{
		"desk, light": {1440, 900, "light"}, "desk, dark": {1440, 900, "dark"}, "phone, light": {390, 844, "light"}, "phone, dark": {390, 844, "dark"},
	} {
		t.Run(name, func(t *testing.T) {
			few, many := open(t, 6), open(t, 200)
			few.look(at)
			many.look(at)
			for _, path := range few.pages() {
				assert.Empty(t, few.faults(source, path), path)
			}
			assert.Empty(t, many.faults(source, "/"), "the fleet of 200 nodes")
		})
	}
}

// fault is what axe-core finds.
type fault struct {
	ID, Help string
	Nodes    []struct{ HTML, FailureSummary string }
}

// faults opens a page and returns its faults.
func (b *tab) faults(source, path string) (found []fault) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url+path), visible("#main > *"), do(source+"; 0"))
	said, err := chromedp.Run(b.Context, chromedp.Evaluate[string](`axe.run({rules: {"target-size": {enabled: true}}}).then((r) => JSON.stringify(r.violations))`, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal([]byte(said), &found))
	return found
}
