// The answers of a page in one file, which `--html` of the program writes: there is no server to ask.

const element = document.getElementById('recorded');

/** The answers by question, and the texts around them; null on the page of a server. */
export const recorded = element && JSON.parse(element.textContent);
