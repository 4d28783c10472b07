package browser

import (
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
)

// The page of a real cluster: test/e2e runs this with its address.
func TestPageOfACluster(t *testing.T) {
	address := os.Getenv("TRANCHE_PAGE")
	if address == "" {
		t.Skip("TRANCHE_PAGE has no address: the end-to-end tests set it")
	}
	b := &tab{t: t, url: address}
	b.visit()
	assert.NotZero(t, eval[int](b, `document.querySelectorAll("article.node .seg").length`), "partitions are drawn")
	b.run(follow("article.node h3 a"), visible("#nodehead"), follows)
	b.run(follow("article.gpu h2 a"), visible("#partitions"), follows)
	b.run(chromedp.Navigate(address+"fits?profile=1g.10gb"), visible("main pre"))
	assert.Contains(t, eval[string](b, `document.querySelector("main").textContent`), "kind: ResourceClaim")
	b.run(chromedp.Navigate(address+"pending"), follows, visible("main a"))
}

// follow follows a link, also if an update replaces it at that moment.
func follow(selector string) chromedp.Action[chromedp.Void] {
	return do(fmt.Sprintf("document.querySelector(%q).click(); 0", selector))
}
