// A browser starts no worker in a page that it opens from a file. There the search runs in a hidden
// frame instead, with the part of a worker's interface that it uses. Messages are delivered later, as
// those of a worker are: the page does not expect an answer while it sends.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(script) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }))
      const element = inside.document.createElement("script")
      element.src = script
      this.loaded = new Promise((resolve, reject) => {
        element.onload = resolve
        element.onerror = reject
      })
      inside.document.head.append(element)
    }

    postMessage(data) {
      this.loaded.then(
        () => setTimeout(() => this.frame.contentWindow?.onmessage({ data })),
        (error) => this.onerror?.(error),
      )
    }

    terminate() {
      this.frame.remove()
    }
  }
}
