// Questions to the user in a dialog of the page.

const get = (id) => document.getElementById(id);

// Ask a question; return whether the answer is yes. `yes` is the text of that button.
export async function confirmed(title, text, yes) {
  return (await question({ title, text, yes })) !== null;
}

// Ask for a text, which begins as `value`; return it, or null. `check(text)` returns why a text is refused, or "".
export function typed(title, value, yes, check) {
  return question({ title, text: "", yes, value, check });
}

function question({ title, text, yes, value = null, check = () => "" }) {
  const dialog = get("question");
  const [form, input] = [dialog.querySelector("form"), get("question-input")];
  get("question-title").textContent = title;
  get("question-text").textContent = text;
  get("question-failed").textContent = "";
  get("question-yes").textContent = yes;
  input.hidden = value === null;
  input.value = value ?? "";
  return new Promise((resolve) => {
    let answer = null;
    form.onsubmit = (event) => {
      event.preventDefault();
      const why = check(input.value);
      get("question-failed").textContent = why;
      if (why) return;
      answer = input.value;
      dialog.close();
    };
    get("question-no").onclick = () => dialog.close();
    dialog.onclose = () => resolve(answer); // also after Escape
    dialog.showModal();
    if (value === null) return get("question-no").focus();
    input.focus();
    const end = value.lastIndexOf(".");
    input.setSelectionRange(0, end > 0 ? end : value.length);
  });
}
