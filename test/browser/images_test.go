package browser

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var images = flag.String("images", "", "folder to which TestImages writes the images of the documentation: ../../docs/images")

// The images of the documentation are made again when the page changes.
func TestImages(t *testing.T) {
	if *images == "" {
		t.Skip("-images names no folder")
	}
	few, many := open(t, 6), open(t, 1000)
	pages := few.pages()
	for name, image := range map[string]struct {
		*tab
		path string
		screen
	}{
		"fleet": {many, "/", screen{1240, 860, "dark"}}, "node": {few, pages[1], screen{1240, 830, "light"}}, "gpu": {few, pages[2], screen{1240, 720, "light"}},
	} {
		image.look(image.screen)
		image.run(chromedp.Navigate(image.url+image.path), follows)
		data, err := chromedp.Run(image.Context, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(*images, name+".png"), data, 0o600))
	}
}
