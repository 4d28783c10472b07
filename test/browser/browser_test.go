package browser

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/usage"
	"github.com/tranche-dev/tranche/pkg/web"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/test/page/invent"
)

// patience is for a machine that is busy.
const patience = time.Minute

// What the page promises with a thousand nodes on a machine that has nothing else to do.
const (
	firstPaint = time.Second
	updated    = 100 * time.Millisecond
)

// tab is a page in the browser.
type tab struct {
	context.Context
	t       *testing.T
	url     string
	store   *live.Store
	objects invent.Objects

	mu sync.Mutex
	// said is what the browser complains about: errors of scripts, refusals of the policy.
	said []string
}

// open serves an invented cluster and opens its page.
func open(t *testing.T, nodes int) *tab {
	t.Helper()
	return openWith(t, nodes, nil)
}

func openWith(t *testing.T, nodes int, used web.Usage) *tab {
	t.Helper()
	b := &tab{t: t, store: live.New(time.Now), objects: invent.Cluster(nodes, time.Now())}
	if used == nil {
		used = invent.Usage(b.objects)
	}
	require.NoError(t, b.store.Load(b.objects.Objects, b.objects.Plans...))
	b.store.Step(t.Context())
	go b.store.Run(t.Context())
	page, err := web.New(web.Options{Source: b.store, Now: time.Now, Why: b.store.Explain, Usage: used})
	require.NoError(t, err)
	server := httptest.NewServer(page)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	b.url = server.URL
	b.visit()
	return b
}

// visit opens the page in a browser of its own.
func (b *tab) visit() {
	b.t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		missing(b.t, "there is no chromium: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	ctx, stop := context.WithTimeout(b.t.Context(), 3*patience)
	b.t.Cleanup(stop)
	ctx, stop = chromedp.NewExecAllocator(ctx, options...)
	b.t.Cleanup(stop)
	b.Context, stop = chromedp.NewContext(ctx)
	b.t.Cleanup(stop)
	require.NoError(b.t, chromedp.Listen(b.Context, b.listen))
	call(b, log.Enable, cdp.Empty{})
	b.run(chromedp.Navigate(b.url), follows)
	b.t.Cleanup(func() { assert.Empty(b.t, b.complaints(), "what the browser complains about") })
}

func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		b.said = append(b.said, e.ExceptionDetails.Text)
		if o := e.ExceptionDetails.Exception; o != nil {
			b.said = append(b.said, o.Description)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.said = append(b.said, e.Entry.Text)
		}
	}
}

func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said
}

// follows waits until the page gets updates.
var follows = visible("#live[data-state=on]")

func visible(selector chromedp.CSS) chromedp.Action[chromedp.Void] {
	return chromedp.WaitVisible(selector)
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.Context, actions...))
}

// call runs a command of the browser's protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	out, err := chromedp.Run(b.Context, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) })
	require.NoError(b.t, err)
	return out
}

// eval is the value of an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	out, err := chromedp.Run(b.Context, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return out
}

// do runs a script in the page.
func do(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](script)
}

// press presses a key as a keyboard does: what the page prevents is not typed. KeyEvent types it all
// the same, because it sends the character by itself.
func (b *tab) press(key string) {
	b.t.Helper()
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kb.KeyDown, Key: key, Text: key})
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kb.KeyUp, Key: key})
}

// await waits for an expression to be true.
func (b *tab) await(expression string) {
	b.t.Helper()
	// Each time anew: a page that is being left takes scripts that wait with it.
	require.Eventually(b.t, func() bool {
		is, err := chromedp.Run(b.Context, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		return err == nil && is
	}, patience, 20*time.Millisecond, expression)
}

// held is a claim that holds a GPU of the first node, and the same without its allocation.
func (b *tab) held() (held, free *resourceapi.ResourceClaim) {
	for i := range b.objects.Claims {
		c := &b.objects.Claims[i]
		if a := c.Status.Allocation; a != nil && a.Devices.Results[0].Pool == "node-0001" {
			free = c.DeepCopy()
			free.Status.Allocation, free.Status.ReservedFor = nil, nil
			return c, free
		}
	}
	require.Fail(b.t, "nothing is held on node-0001")
	return nil, nil
}

func TestAThousandNodes(t *testing.T) {
	b := open(t, 1000)
	b.run(chromedp.Reload(), follows)
	b.await(`performance.getEntriesByName("first-contentful-paint").length > 0`)
	assert.Equal(t, 1000, eval[int](b, `document.querySelectorAll("a.n").length`))
	assert.Equal(t, 8000, eval[int](b, `document.querySelectorAll("a.n .c").length`))
	paint := time.Duration(eval[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`) * float64(time.Millisecond))
	t.Logf("first contentful paint after %s", paint.Round(time.Millisecond))
	assert.Less(t, paint, firstPaint)

	held, free := b.held()
	var best time.Duration
	for i, c := range []*resourceapi.ResourceClaim{free, held, free, held, free, held} {
		b.run(do(`window.seen = 0; window.node = document.getElementById("n-node-0001");
			window.watch = new MutationObserver(() => requestAnimationFrame(() => { window.seen ||= Date.now(); }));
			window.watch.observe(document.getElementById("main"), {subtree: true, childList: true, attributes: true, attributeFilter: ["class", "aria-label"]}); 0`), chromedp.Sleep(200*time.Millisecond))
		b.run(do(`window.seen = 0`))
		began := time.Now()
		require.NoError(t, b.store.Put(c))
		b.await(`window.seen > 0`)
		took := time.UnixMilli(eval[int64](b, `window.seen`)).Sub(began)
		t.Logf("update %d on the screen after %s", i, took.Round(time.Millisecond))
		if best == 0 || took < best {
			best = took
		}
	}
	assert.Less(t, best, updated)
}

// With the keyboard alone: to the heat map, along it, and to a node, a GPU and back.
func TestKeyboard(t *testing.T) {
	b := open(t, 20)
	active := func() string { return eval[string](b, `document.activeElement.id`) }
	assert.Equal(t, 1, eval[int](b, `document.querySelectorAll('a.n:not([tabindex="-1"])').length`), "the map is one stop of the tab key")
	b.run(do(`document.querySelector("a.n").focus()`))
	first := active()
	b.run(chromedp.KeyEvent(kb.ArrowRight))
	second := active()
	assert.NotEqual(t, first, second)
	assert.Contains(t, eval[string](b, `document.querySelector(".inspector p").textContent`), strings.TrimPrefix(second, "n-"))
	b.run(chromedp.KeyEvent(kb.ArrowLeft))
	assert.Equal(t, first, active())
	b.run(chromedp.KeyEvent(kb.End))
	last := active()
	b.run(chromedp.KeyEvent(kb.ArrowUp))
	assert.NotEqual(t, last, active())
	b.run(chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.Enter), visible("#nodehead"))
	assert.Equal(t, strings.TrimPrefix(first, "n-"), eval[string](b, `document.querySelector("h1").textContent`))
	b.run(chromedp.KeyEvent("g"), chromedp.KeyEvent("r"), visible("#plans"))
	b.run(chromedp.KeyEvent("g"), chromedp.KeyEvent("w"), visible("#fitsform"))
	b.run(chromedp.SendKeys(chromedp.CSS("#profile"), "1g.10gb"+kb.Enter), visible("#claim"))
	assert.Contains(t, eval[string](b, `document.getElementById("claim").textContent`), "gpu-mig-1g-10gb.tranche.dev")
	b.run(do(`document.activeElement.blur()`), chromedp.KeyEvent("?"))
	assert.True(t, eval[bool](b, `document.getElementById("keys").open`))
}

func TestFilter(t *testing.T) {
	b := open(t, 60)
	b.press("/")
	b.run(chromedp.KeyEvent("node-000"))
	b.await(`document.getElementById("found").value === "9 of 60 nodes"`)
	b.run(do(`document.querySelector("#filter input").value = ""`), chromedp.Click(chromedp.CSS(`[data-state="switching"]`)))
	shown := `[...document.querySelectorAll("a.n:not([hidden])")]`
	b.await(shown + `.length > 0 && ` + shown + `.every((n) => n.dataset.s.includes("switching"))`)
	// An update does not undo it.
	_, free := b.held()
	require.NoError(t, b.store.Put(free))
	b.await(`document.getElementById("found").value.endsWith("of 60 nodes")`)
	assert.Less(t, eval[int](b, shown+`.length`), 60)
}

// The page of a GPU that is open gets its charts with the first sample, and is not loaded again.
func TestChartAppears(t *testing.T) {
	answer := make(chan struct{})
	used := live.NewHistory(func(ctx context.Context, _ string) (usage.Node, error) {
		select {
		case <-answer:
		case <-ctx.Done():
			return usage.Node{}, ctx.Err()
		}
		compute, memory := 0.62, float64(49<<30)
		return usage.Node{GPUs: []usage.GPU{{Name: "gpu-0000-0f-00-0", Values: usage.Values{Compute: &compute, MemoryUsed: &memory}}}}, nil
	})
	go used.Run(t.Context())
	b := openWith(t, 3, used)
	b.run(chromedp.Navigate(b.url+"/nodes/node-0001/gpu-0000-0f-00-0"), follows)
	text := `document.getElementById("usage").textContent`
	assert.Contains(t, eval[string](b, text), "Not known: ")
	b.run(do(`window.same = true; 0`))
	close(answer)
	b.await(`document.querySelectorAll("#usage svg.chart").length === 2`)
	assert.True(t, eval[bool](b, `window.same`), "the page was loaded again")
	assert.Contains(t, eval[string](b, text), "62 %")
	assert.Contains(t, eval[string](b, `document.querySelector("#usage svg").getAttribute("aria-label")`), "Compute: 62 % now")
	assert.NotContains(t, eval[string](b, text), "Not known")
}

// The focus and what is opened stay where they are when the page changes.
func TestUpdatesDisturbNobody(t *testing.T) {
	b := open(t, 20)
	held, free := b.held()
	b.run(do(`document.getElementById("n-node-0001").focus(); window.before = document.getElementById("n-node-0001").getAttribute("aria-label"); window.html = document.getElementById("n-node-0001").innerHTML`))
	require.NoError(t, b.store.Put(free))
	b.await(`document.getElementById("n-node-0001").innerHTML !== window.html`)
	assert.Equal(t, "n-node-0001", eval[string](b, `document.activeElement.id`))
	b.run(chromedp.Navigate(b.url+"/nodes/node-0001"), follows)
	device := held.Status.Allocation.Devices.Results[0].Device
	require.NotEmpty(t, device)
	require.NoError(t, b.store.Put(held))
	b.await(fmt.Sprintf(`document.getElementById("main").textContent.includes(%q)`, held.Namespace+"/"+held.Status.ReservedFor[0].Name))
}

func TestPendingPods(t *testing.T) {
	b := open(t, 3)
	b.run(chromedp.Navigate(b.url+"/pending"), visible("#pending"))
	b.await(`document.querySelectorAll(".answer").length === 3 && document.querySelectorAll(".answer[data-done]").length === 3`)
	assert.NotContains(t, eval[string](b, `document.getElementById("pending").textContent`), "cannot allocate all claims", "what the scheduler says has given way")
	b.press("/")
	b.run(chromedp.KeyEvent("nlp"), chromedp.KeyEvent(kb.Enter))
	b.await(`location.search === "?filter=nlp" && document.querySelectorAll("#pending li").length === 1`)
	b.run(chromedp.Click(chromedp.CSS(`#pending h2 a`)), visible("#why"))
}

// No page has to be scrolled sideways: on a phone, on a desk, or on a desk with everything four times as large.
func TestWidths(t *testing.T) {
	few, many := open(t, 6), open(t, 200)
	for _, width := range []int64{320, 360, 768, 1440} {
		few.look(screen{width, 800, "light"})
		many.look(screen{width, 800, "light"})
		for _, path := range few.pages() {
			few.run(chromedp.Navigate(few.url+path), visible("#main > *"))
			assert.LessOrEqual(t, eval[int64](few, `document.documentElement.scrollWidth`), width, path)
		}
		many.run(chromedp.Reload(), visible("#main > *"))
		assert.LessOrEqual(t, eval[int64](many, `document.documentElement.scrollWidth`), width, "the fleet of 200 nodes")
	}
}

// A choice of light or dark is kept.
func TestTheme(t *testing.T) {
	b := open(t, 6)
	background := `getComputedStyle(document.body).backgroundColor`
	before := eval[string](b, background)
	b.run(chromedp.Click(chromedp.CSS("#theme")))
	assert.NotEqual(t, before, eval[string](b, background))
	b.run(chromedp.Reload(), visible("#main > *"))
	assert.NotEqual(t, before, eval[string](b, background), "the choice is kept")
}

// Everything that can be reached has a name and a role that a screen reader says.
func TestNamesForScreenReaders(t *testing.T) {
	b := open(t, 20)
	for _, path := range []string{"/", "/nodes/node-0001", "/rollouts", "/pending", "/fits?profile=1g.10gb"} {
		b.run(chromedp.Navigate(b.url+path), visible("#main > *"))
		nodes := call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
		require.NotEmpty(t, nodes)
		for _, n := range nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			switch role := strings.Trim(string(n.Role.Value), `"`); role {
			case "link", "button", "textbox", "searchbox", "combobox", "image", "img", "progressbar", "region", "navigation":
				assert.True(t, n.Name != nil && len(strings.Trim(string(n.Name.Value), `"`)) > 0, "%s: a %s without a name", path, role)
			}
		}
		assert.Equal(t, "en", eval[string](b, `document.documentElement.lang`))
	}
}
